// Descriptions and values of gauges.

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// age is 0 for what is not, and for a time that is ahead: it may be another machine's.
func age(at, now time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return max(0, now.Sub(at).Seconds())
}

func zeroOne(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
