//! Plots in SVG: horizontal bars, boxes, and lines, each over a logarithmic axis of values.
//!
//! Colours are those of Okabe and Ito, which people with colour blindness can tell apart; each plot has a title and a
//! description for those who do not see it, and the document has its figures as a table.

use std::fmt::Write as _;

/// Values of one engine: one for each label, none where there is no figure.
#[derive(Clone, Debug)]
pub(crate) struct Series<T> {
    pub(crate) name: String,
    pub(crate) values: Vec<Option<T>>,
}

/// Quantiles of a distribution: 0.25, 0.5, 0.75, 0.95 and 0.99.
pub(crate) type Box = [f64; 5];

/// What a plot is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caption<'a> {
    pub(crate) title: &'a str,
    /// What is on the axis of values, with its unit.
    pub(crate) axis: &'a str,
}

const COLOURS: [&str; 8] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442", "#000000",
];
const LEFT: f64 = 130.0;
const PLOT: f64 = 640.0;
const RIGHT: f64 = 70.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 48.0;
const ROW: f64 = 13.0;
const GAP: f64 = 10.0;
const LINES: f64 = 320.0;

/// A bar for each engine beside each label.
pub(crate) fn bars(caption: Caption<'_>, labels: &[String], series: &[Series<f64>]) -> String {
    rows(
        caption,
        labels,
        series,
        |value| [*value, *value],
        |out, scale, value, colour, y| {
            let end = scale.place(*value);
            element(
                out,
                &format!(
                    "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                    (end - LEFT).max(1.0),
                    ROW - 2.0
                ),
            );
            text(out, end + 4.0, y + ROW - 4.0, "start", &number(*value));
        },
    )
}

/// For each engine beside each label a box from the first to the third quartile with a line at the median, and marks at
/// the quantiles 0.95 and 0.99.
pub(crate) fn boxes(caption: Caption<'_>, labels: &[String], series: &[Series<Box>]) -> String {
    rows(
        caption,
        labels,
        series,
        |[low, .., high]| [*low, *high],
        |out, scale, value, colour, y| {
            let [low, median, high, most, nearly] = value.map(|it| scale.place(it));
            let middle = y + ROW / 2.0 - 1.0;
            let bottom = y + ROW - 2.0;
            for line in [
                format!(
                    "<rect x=\"{low:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                    (high - low).max(2.0),
                    ROW - 2.0
                ),
                format!(
                    "<path d=\"M{median:.1} {y:.1}V{bottom:.1}\" stroke=\"#fff\" stroke-width=\"2\"/>"
                ),
                format!(
                    "<path d=\"M{high:.1} {middle:.1}H{nearly:.1}M{most:.1} {y:.1}V{bottom:.1}M{nearly:.1} {:.1}v4\" stroke=\"{colour}\" fill=\"none\" stroke-width=\"1.5\"/>",
                    middle - 2.0
                ),
            ] {
                element(out, &line);
            }
        },
    )
}

/// A line for each engine over labels at equal distances.
#[expect(clippy::cast_precision_loss, reason = "a count of labels")]
pub(crate) fn lines(
    caption: Caption<'_>,
    below: &str,
    labels: &[String],
    series: &[Series<f64>],
) -> String {
    let values = series.iter().flat_map(|it| &it.values).flatten();
    let scale = Scale::over(values.copied(), LINES);
    let step = PLOT / labels.len().max(1) as f64;
    let x = |at: usize| LEFT + step * (at as f64 + 0.5);
    let y = |value: f64| TOP + LINES - (scale.place(value) - LEFT);
    let names: Vec<&str> = series.iter().map(|it| it.name.as_str()).collect();
    let mut out = begin(caption, &names, LINES);
    for tick in scale.ticks() {
        let at = y(tick);
        grid(&mut out, &format!("M{LEFT} {at:.1}h{PLOT}"));
        text(&mut out, LEFT - 6.0, at + 4.0, "end", &number(tick));
    }
    for (at, label) in labels.iter().enumerate() {
        text(&mut out, x(at), TOP + LINES + 18.0, "middle", label);
    }
    let foot = TOP + LINES + 38.0;
    text(&mut out, LEFT + PLOT / 2.0, foot, "middle", below);
    text(&mut out, 8.0, TOP - 8.0, "start", caption.axis);
    for (series, colour) in series.iter().zip(COLOURS.iter().cycle()) {
        let points = series.values.iter().enumerate();
        let points: Vec<(f64, f64)> = points
            .filter_map(|(at, value)| value.map(|value| (x(at), y(value))))
            .collect();
        let path: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let path = path.join(" ");
        element(
            &mut out,
            &format!(
                "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
            ),
        );
        for (x, y) in points {
            element(
                &mut out,
                &format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{colour}\"/>"),
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Places of values on a logarithmic axis.
struct Scale {
    /// Powers of ten that bound it.
    low: i32,
    high: i32,
    /// Its length.
    length: f64,
}

impl Scale {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "exponents of times and rates are small"
    )]
    fn over(values: impl Iterator<Item = f64>, length: f64) -> Self {
        let logs = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = logs.fold((f64::MAX, f64::MIN), |(low, high), log| {
            (low.min(log), high.max(log))
        });
        if low > high {
            return Self {
                low: 0,
                high: 1,
                length,
            };
        }
        let low = (low - 1e-9).floor() as i32;
        Self {
            low,
            high: (high.ceil() as i32).max(low + 1),
            length,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let low = f64::from(self.low);
        let share = (value.max(f64::MIN_POSITIVE).log10() - low) / (f64::from(self.high) - low);
        LEFT + self.length * share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        (self.low..=self.high).map(|power| 10_f64.powi(power))
    }
}

/// The rows that bars and boxes have in common; `ends` gives what must lie on the axis, `draw` draws a value.
#[expect(clippy::cast_precision_loss, reason = "counts of rows")]
fn rows<T>(
    caption: Caption<'_>,
    labels: &[String],
    series: &[Series<T>],
    ends: impl Fn(&T) -> [f64; 2],
    draw: impl Fn(&mut String, &Scale, &T, &str, f64),
) -> String {
    let values = series.iter().flat_map(|it| &it.values).flatten();
    let scale = Scale::over(values.flat_map(&ends), PLOT);
    let group = ROW * series.len() as f64 + GAP;
    let height = group * labels.len() as f64;
    let names: Vec<&str> = series.iter().map(|it| it.name.as_str()).collect();
    let mut out = begin(caption, &names, height);
    for tick in scale.ticks() {
        let at = scale.place(tick);
        grid(&mut out, &format!("M{at:.1} {TOP}v{height:.1}"));
        let foot = TOP + height + 16.0;
        text(&mut out, at, foot, "middle", &number(tick));
    }
    let foot = TOP + height + 36.0;
    text(&mut out, LEFT + PLOT / 2.0, foot, "middle", caption.axis);
    for (row, label) in labels.iter().enumerate() {
        let top = TOP + group * row as f64 + GAP / 2.0;
        let middle = top + (group - GAP) / 2.0 + 4.0;
        text(&mut out, LEFT - 8.0, middle, "end", label);
        let colours = COLOURS.iter().cycle();
        for (at, (series, colour)) in series.iter().zip(colours).enumerate() {
            let y = top + ROW * at as f64;
            match series.values.get(row).and_then(Option::as_ref) {
                Some(value) => draw(&mut out, &scale, value, colour, y),
                None => text(&mut out, LEFT + 4.0, y + ROW - 4.0, "start", "no figure"),
            }
        }
    }
    out.push_str("</svg>\n");
    out
}

/// The head of a plot with its legend; `height` is that of the plot alone.
#[expect(clippy::cast_precision_loss, reason = "a count of engines")]
fn begin(caption: Caption<'_>, names: &[&str], height: f64) -> String {
    let (width, height) = (LEFT + PLOT + RIGHT, TOP + height + BOTTOM);
    let (title, axis) = (escaped(caption.title), escaped(caption.axis));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height:.0}\" width=\"{width}\" height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"12\" role=\"img\">\n\
         <title>{title}</title>\n<desc>{axis}, logarithmic, of {}; the table beside this plot has its figures</desc>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"15\" font-weight=\"bold\">{title}</text>\n",
        escaped(&names.join(", ")),
    );
    let step = (LEFT + PLOT) / names.len().max(1) as f64;
    for (at, (name, colour)) in names.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let x = 8.0 + step.min(150.0) * at as f64;
        element(
            &mut out,
            &format!("<rect x=\"{x}\" y=\"30\" width=\"11\" height=\"11\" fill=\"{colour}\"/>"),
        );
        text(&mut out, x + 16.0, 40.0, "start", name);
    }
    out
}

fn element(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn grid(out: &mut String, path: &str) {
    element(out, &format!("<path d=\"{path}\" stroke=\"#ccc\"/>"));
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, text: &str) {
    // Writing to a string cannot fail.
    writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escaped(text)
    )
    .unwrap_or_default();
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// A figure with about three digits.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => grouped(value.round()),
        size if size >= 10.0 => trimmed(&format!("{value:.1}")),
        size if size >= 0.1 => trimmed(&format!("{value:.2}")),
        _ => trimmed(&format!("{value:.4}")),
    }
}

fn trimmed(text: &str) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A whole number with a comma before each three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
