//! x
use std::time::Instant;
fn main() {
    for p in std::env::args().skip(1) {
        let t = Instant::now();
        match memviz::input::read_observed(
            memviz::input::open(p.as_ref()).unwrap(),
            &Default::default(),
            memviz::replay::HeadStart::default(),
        ) {
            Ok((i, hst)) => {
                let r = t.elapsed();
                let hs = hst.finish(&i.snapshot);
                eprintln!("read {r:?} total {:?}", t.elapsed());
                for h in &hs {
                    let m: Vec<i64> = h.maxima.iter().map(|m| m.bytes).collect();
                    let e = [h.end.allocated, h.end.active, h.end.requested, h.end.reserved];
                    let k: Vec<String> =
                        h.anomalies.kinds().map(|a| format!("{}:{}", a.kind.name(), a.count)).collect();
                    println!(
                        "{p}\t{}\t{:?}\t{:?}\t{}\t{}\t{:?}\t{:?}",
                        h.device, m, e, h.start.allocated, h.start.reserved, k, h.completeness
                    );
                }
            }
            Err(e) => println!("{p}: {e}"),
        }
    }
}
