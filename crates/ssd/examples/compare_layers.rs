// SPDX-License-Identifier: Apache-2.0
//! One workload on a drive under three translation layers: the effect of each on the flash, and the
//! life of the drive.
//!
//!     cargo run -p senko_ssd --example compare_layers

use senko_ssd::Error;
use senko_ssd::device::Parts;
use senko_ssd::drive::{Drive, Load};
use senko_ssd::generate::{Arrival, Generator, Pattern, Phase};
use senko_ssd::lifetime::Lifetime;
use senko_ssd::profile::Profile;
use senko_ssd::report::Report;

/// The layers, as `--ftl` of `senko ssd run` names them.
const LAYERS: [&str; 3] = ["page", "dftl", "bast"];

/// Writes of one page each, a fifth of the pages having four fifths of them.
fn workload() -> Result<Generator, Error> {
    let pattern = Pattern::HotCold {
        r: 0.8,
        f: 0.2,
        scatter: true,
        split: false,
    };
    Generator::new(vec![Phase {
        arrival: Arrival::Poisson(100.0),
        ..Phase::new(pattern, 50_000, 20_000)
    }])
}

/// Runs the workload on a drive that is nine tenths full.
fn run(profile: &Profile, layer: &str) -> Result<Report, Error> {
    let parts = Parts {
        ftl: Some(layer.parse()?),
        ..Parts::default()
    };
    let mut drive = Drive::new(profile, &parts)?;
    drive.precondition(0.9)?;
    let requests = workload()?.map(Ok::<_, Error>);
    drive.run(requests, Load::Open { speed: 1.0 })
}

/// Prints a line for each layer.
pub fn main() -> Result<(), Error> {
    let profile = Profile::find("paper-1gb")?;
    for layer in LAYERS {
        let report = run(&profile, layer)?;
        let amplification = report.write_amplification().unwrap_or_default();
        assert!(
            amplification >= 1.0,
            "each page written is programmed at least once"
        );
        let years = match Lifetime::of(&report, profile.endurance.cycles) {
            Some(life) => format!("{:.1} years", life.years),
            None => "a life that so short a run cannot tell".to_owned(),
        };
        println!("{layer:8} write amplification {amplification:.2}, {years}");
    }
    Ok(())
}
