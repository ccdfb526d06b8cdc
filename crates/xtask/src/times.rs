// SPDX-License-Identifier: Apache-2.0
//! How long the steps of `cargo xtask test` take: as long as they took when they last ran here.
//!
//! [`crate::test`] tells it before the first step. The times lie in the target directory.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::Workspace;

/// Seconds of the last run, by step.
#[derive(Debug, Default)]
pub struct Times {
    file: PathBuf,
    quick: bool,
    seconds: BTreeMap<String, f64>,
}

impl Times {
    /// Those of the last runs; none if there was none, or its file cannot be read.
    pub fn read(workspace: &Workspace) -> Times {
        let file = workspace.target.join("xtask-times.json");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        Times {
            seconds: serde_json::from_str(&text).unwrap_or_default(),
            file,
            quick: workspace.quick,
        }
    }

    /// A quick step is another one: it does less.
    fn name(&self, step: &str) -> String {
        format!("{step}{}", if self.quick { " --quick" } else { "" })
    }

    /// The expected time of lanes of steps, which run at the same time, in one line.
    pub fn expected(&self, lanes: &[&[&str]]) -> String {
        let times = |lane: &[&str]| -> Vec<f64> {
            let known = |step| self.seconds.get(&self.name(step)).copied();
            lane.iter().filter_map(|step| known(step)).collect()
        };
        let steps = lanes.concat();
        let known = times(&steps);
        let longest = |most: f64, lane: &&[&str]| most.max(times(lane).iter().sum());
        let all = lanes.iter().fold(0.0, longest);
        let length = match all {
            90.0.. => format!("{:.0} minutes", all / 60.0),
            _ => format!("{all:.0} seconds"),
        };
        match (known.len(), steps.len() - known.len()) {
            (0, _) => "How long this takes is not known: it has not run here yet. \
                       All steps take 45 to 70 minutes on two cores, --quick half of that."
                .to_owned(),
            (_, 0) => format!("This took {length} when it last ran here."),
            (_, new) => {
                format!("This took {length} when it last ran here, without {new} new steps.")
            }
        }
    }

    /// Notes how long a step took.
    pub fn note(&mut self, step: &str, time: Duration) {
        self.seconds.insert(self.name(step), time.as_secs_f64());
        // Times that cannot be written are not reported next time; the run continues.
        if let Ok(text) = serde_json::to_string_pretty(&self.seconds) {
            drop(std::fs::write(&self.file, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steps_took_is_what_they_are_said_to_take() {
        let folder = std::env::temp_dir().join(format!("senko-times-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("made");
        let workspace = |quick| Workspace {
            root: folder.clone(),
            target: folder.clone(),
            ci: false,
            quick,
        };
        let mut times = Times::read(&workspace(false));
        assert!(times.expected(&[&["fmt", "unit"]]).contains("not known"));
        times.note("fmt", Duration::from_secs(60));
        times.note("unit", Duration::from_secs(240));
        let again = Times::read(&workspace(false));
        assert!(
            again
                .expected(&[&["fmt", "unit"], &[]])
                .contains("5 minutes")
        );
        assert!(
            again
                .expected(&[&["fmt", "docs"]])
                .contains("60 seconds when it last ran here, without 1")
        );
        times.note("clients", Duration::from_secs(600));
        let lanes: [&[&str]; 2] = [&["fmt", "unit"], &["clients"]];
        assert!(times.expected(&lanes).contains("took 10 minutes"));
        let quick = Times::read(&workspace(true));
        assert!(quick.expected(&[&["fmt"]]).contains("not known"));
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
