// Pins the programs by which `cargo xtask bench brokers --cross-check` looks at two rows again.
module unbroken.example/load-generators

go 1.24.0

tool (
	github.com/jeffallen/mqtt/loadtest
	github.com/jeffallen/mqtt/pingtest
)

require github.com/jeffallen/mqtt v0.0.0-20231208081828-a9a6bdf130a6

require (
	github.com/eclesh/welford v0.0.0-20240205031321-ea1c1e3189c0 // indirect
	github.com/huin/mqtt v0.0.0-20200914141616-61735481eb15 // indirect
)
