//go:build nightly

package dlq

import "testing"

// So few rows are read beside a million dead letters, too.
func TestPagesBesideAMillionRows(t *testing.T) { readsFew(t, 1_000_000) }
