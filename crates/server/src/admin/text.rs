// SPDX-License-Identifier: Apache-2.0
//! Prometheus' text format 0.0.4, line by line: families, samples, labels, histograms.

use std::fmt::{Display, Write as _};

use senko_io::Times;

/// Text under construction.
pub(super) struct Text(pub String);

impl Text {
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (n, (label, text)) in labels.iter().enumerate() {
            let open = if n == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{label}=\"");
            for char in text.chars() {
                match char {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    char => self.0.push(char),
                }
            }
            self.0.push('"');
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    pub fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    pub fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    /// A gauge, if there is a value.
    pub fn known(&mut self, name: &str, help: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.gauge(name, help, value);
        }
    }

    /// Gauges with one label.
    pub fn gauges<V: Display>(&mut self, name: &str, label: &str, help: &str, of: &[(&str, V)]) {
        self.family(name, "gauge", help);
        for (text, value) in of {
            self.sample(name, &[(label, text)], value);
        }
    }

    /// Counters with one label.
    pub fn counters<V: Display>(&mut self, name: &str, label: &str, help: &str, of: &[(&str, V)]) {
        self.family(name, "counter", help);
        for (text, value) in of {
            self.sample(name, &[(label, text)], value);
        }
    }

    pub fn histogram(&mut self, name: &str, labels: [(&str, &str); 2], times: &Times) {
        let [first, second] = labels;
        let (bucket, sum, count) = (
            format!("{name}_bucket"),
            format!("{name}_sum"),
            format!("{name}_count"),
        );
        for (end, below) in times.bounds() {
            let end = end.to_string();
            self.sample(&bucket, &[first, second, ("le", &end)], below);
        }
        self.sample(&bucket, &[first, second, ("le", "+Inf")], times.count());
        self.sample(&sum, &labels, times.seconds());
        self.sample(&count, &labels, times.count());
    }
}
