//go:build testall

package dlq

import "testing"

// A page of a list reads about as many rows as it shows, whatever the tables have, and a count of
// groups no more than it says.
func TestPagesBesideManyRows(t *testing.T) { readsFew(t, 5_000) }
