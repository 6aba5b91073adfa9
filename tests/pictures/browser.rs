//! A picture in a real browser.

use crate::support::{fixture, memviz, skipped};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// When this is 1, a missing browser is a failure.
const REQUIRE: &str = "MEMVIZ_REQUIRE_BROWSER";
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Colors that both themes must show: background, text, and the band of activations.
const LIGHT: [[u8; 3]; 3] = [[0xff, 0xff, 0xff], [0x1f, 0x23, 0x28], [0xb7, 0x7c, 0xd6]];
const DARK: [[u8; 3]; 3] = [[0x0d, 0x11, 0x17], [0xe6, 0xed, 0xf3], [0xa9, 0x32, 0xbd]];

#[test]
fn a_browser_draws_a_report_in_both_themes() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("report.svg");
    memviz(&["report", &fixture("gpt_train"), "-o", svg.to_str().unwrap()]).expect(0);
    // As on GitHub: an image, in which nothing is loaded and nothing runs.
    let page = folder.path().join("issue.html");
    fs::write(&page, "<body style='margin:0'><img src='report.svg'>").unwrap();
    for (theme, colors, absent) in [("light", LIGHT, DARK), ("dark", DARK, LIGHT)] {
        let image = folder.path().join(format!("{theme}.png"));
        shoot(browser, &page, &image, theme);
        let pixels = pixels(&image);
        let share = |color: [u8; 3]| pixels.iter().filter(|pixel| **pixel == color).count() * 10_000 / pixels.len();
        assert!(share(colors[0]) > 4_000, "{theme}: the background is {} of 10,000", share(colors[0]));
        for color in &colors[1..] {
            assert!(share(*color) > 2, "{theme}: {color:x?} is {} of 10,000", share(*color));
        }
        assert_eq!(share(absent[2]), 0, "{theme}: a color of the other theme");
    }
}

/// The width of a report in a phone's window and in a desktop window, with everything expanded.
#[test]
fn a_report_needs_no_scrolling_sideways() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["gpt_train", "oom", "multi_gpu", "fragmented"] {
        let report = folder.path().join("report.html");
        memviz(&["report", "--force", &fixture(name), "-o", report.to_str().unwrap()]).expect(0);
        let html = fs::read_to_string(&report).unwrap().replace("<details", "<details open");
        let html = html.replace('&', "&amp;").replace('"', "&quot;");
        let frames =
            [420, 1200].map(|width| format!("<iframe style='width:{width}px;border:0' srcdoc=\"{html}\"></iframe>"));
        let script = "onload = () => { document.body.textContent = 'widths ' + [...document.querySelectorAll('iframe')]\
                      .map((frame) => frame.contentDocument.documentElement.scrollWidth).join(' ') + ' end' }";
        let page = folder.path().join("frames.html");
        fs::write(&page, format!("<body>{}<script>{script}</script>", frames.concat())).unwrap();
        let dom = run(browser, &page, &["--dump-dom"]);
        assert!(dom.contains("widths 420 1200 end"), "{name}: {}", &dom[dom.len().saturating_sub(200)..]);
    }
}

pub fn browser() -> Option<&'static str> {
    let runs = |name: &&str| {
        let version = Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    let found = BROWSERS.into_iter().find(runs);
    if found.is_none() {
        let required = std::env::var(REQUIRE).is_ok_and(|value| value == "1");
        assert!(!required, "{REQUIRE}=1, but none of {BROWSERS:?} is installed");
        skipped(&format!("no browser is installed; {REQUIRE}=1 makes that a failure"));
    }
    found
}

fn shoot(browser: &str, page: &Path, image: &Path, theme: &str) {
    let scheme = if theme == "dark" { "0" } else { "1" };
    let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
    let screenshot = format!("--screenshot={}", image.display());
    run(browser, page, &[&scheme, &screenshot]);
    assert!(image.exists(), "no screenshot");
}

/// What the browser prints about a page.
pub fn run(browser: &str, page: &Path, args: &[&str]) -> String {
    let profile = tempfile::tempdir().unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"])
        .args(["--force-device-scale-factor=1", "--window-size=1200,1800"])
        .args(args)
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn pixels(image: &Path) -> Vec<[u8; 3]> {
    let decoder = png::Decoder::new(std::io::BufReader::new(fs::File::open(image).unwrap()));
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let samples = info.color_type.samples();
    assert!(samples >= 3, "{:?}", info.color_type);
    bytes[..info.buffer_size()].chunks_exact(samples).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
}
