//go:build !nightly

package sim

// usual is how many seeds TestSeeds plays: so many as take about five seconds of one core.
const usual = 4_000
