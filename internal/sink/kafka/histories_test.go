//go:build !nightly

package kafka

// usualHistories is how many runs of each plan TestHistories plays.
const usualHistories = 1
