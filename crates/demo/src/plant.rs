//! A small plant and what its sensors read: where the shipped recording comes from.
//!
//! Three machines share a steam line for twenty minutes: load rises, a relief valve blows, and a
//! bearing of the pump begins to fail. Temperatures follow load slowly, pressures quickly, and
//! vibration follows speed and wear.
//!
//! Invariant: the same rows on every machine. So there is nothing here but sums, products and
//! quotients, which IEEE 754 fixes to the bit, and the noise is a counter's.

use std::fmt::Write as _;

/// What the first line of the recording says.
pub const HEADER: &str = "seconds,machine,temperature_c,pressure_bar,vibration_mm_s,rpm";

const MACHINES: usize = 3;
const STEP_S: u32 = 2;
/// 667 readings of each machine: 22 minutes.
const STEPS: u32 = 667;

/// What a machine does at full load, and how it answers.
struct Machine {
    name: &'static str,
    temperature_c: [f64; 2],
    pressure_bar: [f64; 2],
    vibration_mm_s: f64,
    rpm: f64,
    /// Share of the way that its temperature goes in a step.
    warming: f64,
}

const PLANT: [Machine; MACHINES] = [
    Machine {
        name: "boiler",
        temperature_c: [142.0, 187.0],
        pressure_bar: [3.9, 11.2],
        vibration_mm_s: 0.4,
        rpm: 0.0,
        warming: 0.012,
    },
    Machine {
        name: "feed-pump",
        temperature_c: [38.0, 66.0],
        pressure_bar: [8.0, 14.5],
        vibration_mm_s: 1.6,
        rpm: 2_960.0,
        warming: 0.02,
    },
    Machine {
        name: "turbine",
        temperature_c: [121.0, 168.0],
        pressure_bar: [3.2, 9.8],
        vibration_mm_s: 1.1,
        rpm: 6_000.0,
        warming: 0.015,
    },
];

/// The recording: a header and 2,001 rows.
pub fn record() -> String {
    let mut noise = Noise(0x9E37_79B9_7F4A_7C15);
    let mut temperatures = PLANT.map(|machine| machine.temperature_c[0] + 4.0);
    let mut drift = [[0.0; 4]; MACHINES];
    let mut text = format!("{HEADER}\n");
    for step in 0..STEPS {
        let seconds = step * STEP_S;
        let load = load(f64::from(seconds));
        let wear = ramp(f64::from(seconds), 700.0, 1_334.0);
        let relief = relief(f64::from(seconds));
        for (at, machine) in PLANT.iter().enumerate() {
            for drift in &mut drift[at] {
                *drift = 0.8 * *drift + 0.2 * noise.next();
            }
            let [heat, press, shake, turn] = drift[at];
            let bearing = if machine.name == "feed-pump" {
                wear
            } else {
                0.0
            };
            let [cold, hot] = machine.temperature_c;
            let target = cold + (hot - cold) * load + 17.0 * bearing;
            temperatures[at] += machine.warming * (target - temperatures[at]);
            let [low, high] = machine.pressure_bar;
            let pressure = low + (high - low) * load - 2.3 * relief;
            let speed = machine.rpm * (0.82 + 0.18 * load);
            let vibration = machine.vibration_mm_s * (0.6 + 0.4 * load) + 4.2 * bearing * bearing;
            writeln!(
                text,
                "{seconds},{},{:.1},{:.2},{:.2},{:.0}",
                machine.name,
                temperatures[at] + 0.5 * heat,
                pressure + 0.08 * press,
                (vibration + 0.12 * shake * (1.0 + bearing)).max(0.05),
                speed + 0.002 * machine.rpm * turn,
            )
            .expect("a string takes everything");
        }
    }
    text
}

/// Share of full load: the morning's rise, a dip when a customer leaves, and the rest of the shift.
fn load(seconds: f64) -> f64 {
    0.35 + 0.5 * ramp(seconds, 60.0, 360.0) - 0.2 * ramp(seconds, 560.0, 640.0)
        + 0.3 * ramp(seconds, 900.0, 1_100.0)
}

/// The relief valve blows for half a minute, and the line recovers.
fn relief(seconds: f64) -> f64 {
    ramp(seconds, 446.0, 452.0) - ramp(seconds, 480.0, 540.0)
}

/// 0 before `from`, 1 after `to`, and without a corner between them.
fn ramp(at: f64, from: f64, to: f64) -> f64 {
    let x = ((at - from) / (to - from)).clamp(0.0, 1.0);
    x * x * (3.0 - 2.0 * x)
}

/// xorshift64*, as numbers from -1 to 1.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 40) as u32;
        f64::from(high) / f64::from(1_u32 << 23) - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To record it again, write what the example `record` prints to `data/plant.csv`.
    #[test]
    fn the_shipped_recording_is_what_the_plant_reads() {
        assert!(
            record() == include_str!("../data/plant.csv"),
            "record it again"
        );
    }

    #[test]
    fn readings_are_those_of_a_plant() {
        let recording = record();
        let mut rows = recording.lines();
        assert_eq!(rows.next(), Some(HEADER));
        let mut pump = Vec::new();
        for row in rows {
            let cells: Vec<&str> = row.split(',').collect();
            let numbers: Vec<f64> = cells[2..]
                .iter()
                .map(|cell| cell.parse().unwrap())
                .collect();
            assert!((30.0..200.0).contains(&numbers[0]), "{row}");
            assert!((0.5..16.0).contains(&numbers[1]), "{row}");
            assert!((0.0..8.0).contains(&numbers[2]), "{row}");
            if cells[1] == "feed-pump" {
                pump.push(numbers[2]);
            }
        }
        assert_eq!(pump.len(), STEPS as usize);
        // The bearing is heard at the end.
        assert!(pump[STEPS as usize - 1] > 2.0 * pump[0]);
    }
}
