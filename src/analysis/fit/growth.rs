//! Determines how the size of a request grows with the number that differs between runs.

/// The size of one request in a run: the number, and bytes.
pub type Point = (u64, u64);

/// The predicted size at another number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub bytes: u64,
    /// Whether the recorded sizes follow a polynomial in the number, which determines this size. Otherwise, this is the
    /// best guess.
    pub follows: bool,
    /// Whether the curve fits any sizes, since it has as many parameters as there are sizes.
    pub is_weak: bool,
}

impl Size {
    fn sure(bytes: u64) -> Self {
        Self { bytes, follows: true, is_weak: false }
    }

    fn guess(bytes: u64) -> Self {
        Self { bytes, follows: false, is_weak: false }
    }
}

/// The size at a number, given the sizes at other numbers: at least one, in ascending order of the number.
///
/// The simplest rule that all sizes follow to the byte: constant, proportional, proportional to the square, a straight line,
/// a parabola. If none does, the nearest size is scaled.
pub fn size_at(points: &[Point], at: u64) -> Size {
    if let Some(&(_, bytes)) = points.iter().find(|&&(value, _)| value == at) {
        return Size::sure(bytes);
    }
    let Some(&(first, bytes)) = points.first() else { return Size::guess(0) };
    if points.len() == 1 {
        return Size::guess(proportional(first, bytes, at));
    }
    if points.iter().all(|&(_, size)| size == bytes) {
        return Size::sure(bytes);
    }
    for power in [1, 2] {
        if let Some(size) = of_power(points, at, power) {
            return Size::sure(size);
        }
    }
    if let Some(bytes) = newton(points, at) {
        return Size { bytes, follows: true, is_weak: points.len() <= 3 && !is_line(points) };
    }
    // A size that grows faster than the number has a part that grows with its square. Two points determine that part
    // if no part is constant.
    let from_nothing: Vec<Point> = std::iter::once((0, 0)).chain(points.iter().copied()).collect();
    if let Some(size) = newton(&from_nothing, at) {
        return Size::guess(size);
    }
    let (value, bytes) = nearest(points, at);
    Size::guess(if is_falling(points) { bytes } else { proportional(value, bytes, at) })
}

/// The size at a number of a buffer in which a sum is staged. It grows with the rows until there is a piece for every
/// thread block that the device runs at once.
pub fn staging_at(points: &[Point], at: u64) -> Size {
    let is_recorded = points.iter().any(|&(value, _)| value == at);
    match points {
        [(first, low), .., (_, high)] if low < high && !is_recorded && !is_power(points, 1) => {
            Size::sure(proportional(*first, *low, at).min(*high))
        }
        _ => size_at(points, at),
    }
}

/// The recorded number that is nearest by ratio, and the size there; if two are equally near, the larger one.
fn nearest(points: &[Point], at: u64) -> Point {
    let above = points.iter().copied().find(|&(value, _)| value >= at);
    let below = points.iter().copied().rfind(|&(value, _)| value < at);
    match (below, above) {
        (Some(below), Some(above)) => {
            let is_below = u128::from(at) * u128::from(at) < u128::from(below.0) * u128::from(above.0);
            if is_below { below } else { above }
        }
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => (1, 0),
    }
}

/// Whether three or more sizes are on a straight line.
fn is_line(points: &[Point]) -> bool {
    points.len() > 2 && newton(&points[..2], points[2].0) == Some(points[2].1)
}

fn is_falling(points: &[Point]) -> bool {
    points.windows(2).any(|pair| pair[0].1 > pair[1].1)
}

fn proportional(value: u64, bytes: u64, at: u64) -> u64 {
    let scaled = (u128::from(bytes) * u128::from(at)).div_ceil(u128::from(value.max(1)));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The size if all sizes are a constant times a power of the value.
fn of_power(points: &[Point], at: u64, power: u32) -> Option<u64> {
    let &(value, bytes) = points.first().filter(|_| is_power(points, power))?;
    let unit = u128::from(value).checked_pow(power).filter(|&unit| unit > 0)?;
    let product = u128::from(bytes).checked_mul(u128::from(at).checked_pow(power)?)?;
    product.is_multiple_of(unit).then(|| u64::try_from(product / unit).ok())?
}

/// Whether all sizes are a constant times a power of the value.
fn is_power(points: &[Point], power: u32) -> bool {
    let times = |bytes: u64, value: u64| u128::from(bytes).checked_mul(u128::from(value).checked_pow(power)?);
    let same = |a: &Point, b: &Point| times(a.1, b.0).is_some_and(|bytes| times(b.1, a.0) == Some(bytes));
    points.windows(2).all(|pair| same(&pair[0], &pair[1]))
}

/// The size on the line through two points, or the parabola through three, if these increase and give whole bytes. With more
/// points, the others must be on the same parabola.
fn newton(points: &[Point], at: u64) -> Option<u64> {
    let polynomial = Parabola::through(points.get(..points.len().min(3))?)?;
    let lies_on_it = |&(value, bytes): &Point| polynomial.at(value) == Some(bytes);
    points.iter().all(lies_on_it).then(|| polynomial.at(at))?
}

/// Divided differences: `base + slope (v - first) + bend (v - first)(v - second)`, the last two as fractions.
struct Parabola {
    first: i128,
    second: i128,
    base: i128,
    /// Numerator and denominator.
    slope: (i128, i128),
    bend: (i128, i128),
}

impl Parabola {
    fn through(points: &[Point]) -> Option<Self> {
        let [(v0, s0), (v1, s1), rest @ ..] = points else { return None };
        let (v0, s0, v1, s1) = (i128::from(*v0), i128::from(*s0), i128::from(*v1), i128::from(*s1));
        if v0 >= v1 || rest.first().is_some_and(|&(v2, _)| v1 >= i128::from(v2)) {
            return None;
        }
        let slope = (s1 - s0, v1 - v0);
        let bend = match rest.first() {
            None => (0, 1),
            Some(&(v2, s2)) => {
                let (v2, s2) = (i128::from(v2), i128::from(s2));
                let left = (s2 - s1).checked_mul(v1 - v0)?;
                let right = (s1 - s0).checked_mul(v2 - v1)?;
                let below = (v2 - v1).checked_mul(v1 - v0)?.checked_mul(v2 - v0)?;
                (left.checked_sub(right)?, below)
            }
        };
        // Sizes of tensors do not shrink, do not grow at a falling rate, and do not grow faster than their inputs.
        let is_steep = || s1.checked_mul(v0) > s0.checked_mul(v1);
        let is_tensor = slope.0 >= 0 && bend.0 >= 0 && (!rest.is_empty() || !is_steep());
        is_tensor.then_some(Self { first: v0, second: v1, base: s0, slope, bend })
    }

    fn at(&self, value: u64) -> Option<u64> {
        let (from_first, from_second) = (i128::from(value) - self.first, i128::from(value) - self.second);
        let rise = self.slope.0.checked_mul(from_first)?;
        let curve = self.bend.0.checked_mul(from_first)?.checked_mul(from_second)?;
        let is_whole = rise % self.slope.1 == 0 && curve % self.bend.1 == 0;
        let bytes = self.base.checked_add(rise / self.slope.1)?.checked_add(curve / self.bend.1)?;
        is_whole.then(|| u64::try_from(bytes).ok())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(points: &[Point], value: u64) -> (u64, bool) {
        let size = size_at(points, value);
        (size.bytes, size.follows)
    }

    #[test]
    fn sizes_follow_the_simplest_rule() {
        assert_eq!(at(&[(4, 512), (8, 512)], 16), (512, true));
        assert_eq!(at(&[(4, 40), (8, 80)], 17), (170, true));
        assert_eq!(at(&[(128, 1 << 14), (256, 1 << 16)], 512), (1 << 18, true));
        assert_eq!(at(&[(4, 50), (8, 90)], 16), (170, true), "ten each, and ten");
        assert_eq!(at(&[(2, 14), (4, 36), (8, 104)], 16), (336, true), "the square, and five each");
        assert_eq!(at(&[(4, 40), (8, 80)], 2), (20, true));
    }

    #[test]
    fn growth_without_a_rule_is_marked() {
        assert_eq!(at(&[(8, 100)], 16), (200, false));
        assert_eq!(at(&[(4, 100), (8, 60)], 16), (60, false), "it falls");
        assert_eq!(at(&[(4, 1), (8, 4), (16, 5)], 32), (10, false), "it bends down");
        assert_eq!(at(&[(4, 100), (8, 60), (16, 80)], 32), (80, false), "it falls, and rises again");
        assert_eq!(at(&[(4, 10), (8, 11)], 9), (13, false), "no whole bytes");
        assert_eq!(at(&[(4, 36), (8, 104)], 16), (336, false), "the square, and five each, if that is all");
    }

    #[test]
    fn staging_buffers_grow_until_the_device_is_busy() {
        let at = |points: &[Point], value| staging_at(points, value).bytes;
        assert_eq!(at(&[(8, 80), (16, 112)], 10), 100);
        assert_eq!(at(&[(8, 80), (16, 112)], 12), 112);
        assert_eq!(at(&[(8, 80), (16, 112)], 64), 112);
        assert_eq!(at(&[(8, 80), (16, 160)], 64), 640);
        assert_eq!(at(&[(8, 80)], 64), 640);
    }

    #[test]
    fn a_rule_with_as_many_parameters_as_sizes_is_weak() {
        let is_weak = |points: &[Point]| size_at(points, 64).is_weak;
        assert!(is_weak(&[(4, 50), (8, 90)]), "any two sizes lie on a line");
        assert!(!is_weak(&[(4, 50), (8, 90), (16, 170)]), "three on a line do not by chance");
        assert!(is_weak(&[(2, 14), (4, 36), (8, 104)]), "any three sizes lie on a parabola");
    }

    #[test]
    fn recorded_sizes_are_kept() {
        assert_eq!(at(&[(4, 10), (8, 11)], 8), (11, true));
    }

    #[test]
    fn absurd_sizes_are_no_panic() {
        size_at(&[(1, u64::MAX), (u64::MAX, u64::MAX - 1)], u64::MAX / 2);
        size_at(&[(0, 1), (1, u64::MAX), (u64::MAX, 7)], u64::MAX - 1);
        size_at(&[(0, 0), (3, u64::MAX)], u64::MAX);
    }
}
