//go:build nightly

package sim

// usual is how many seeds TestSeeds plays.
const usual = 60_000
