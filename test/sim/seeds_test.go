//go:build !nightly

package sim

// usual is how many seeds TestSeeds plays: so many as take about ten seconds of one core.
const usual = 8_000
