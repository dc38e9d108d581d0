// Findings of `check`.

package ops

import "time"

// Finding is one line of a preflight check.
type Finding struct {
	Name   string `json:"name"`
	Level  string `json:"level"` // ok, warn or fail
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// Findings are what a check has found, and when.
type Findings struct {
	CheckedAt time.Time `json:"checked_at"`
	Findings  []Finding `json:"findings"`
}
