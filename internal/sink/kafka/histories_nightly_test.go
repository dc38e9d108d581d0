//go:build nightly

package kafka

import "time"

// They are explained in histories_test.go.
const (
	usualHistories = 20
	flowPause      = time.Millisecond
)
