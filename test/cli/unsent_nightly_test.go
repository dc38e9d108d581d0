//go:build nightly

package cli

func init() { usualHistories = 10 }
