package session

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/replication/source"
)

// A stream that is read again must bring the transaction that was read last, before anything behind
// it counts.
func TestSeenAgain(t *testing.T) {
	var c source.Config
	newest := LastTransaction{commit: 100, xid: 7, from: 50}
	for name, read := range map[string]func(a *LastTransaction) (ok bool, err error){
		"itself":               func(a *LastTransaction) (bool, error) { return true, a.begin(&c, 100, 7) },
		"one before it":        func(a *LastTransaction) (bool, error) { return true, a.begin(&c, 90, 6) },
		"a keepalive before":   func(a *LastTransaction) (bool, error) { ok, err := a.passes(&c, 100); return !ok, err },
		"another in its place": func(a *LastTransaction) (bool, error) { return a.begin(&c, 100, 8) != nil, nil },
		"one behind it":        func(a *LastTransaction) (bool, error) { return a.begin(&c, 110, 8) != nil, nil },
		"a keepalive behind":   func(a *LastTransaction) (bool, error) { _, err := a.passes(&c, 101); return err != nil, nil },
		"what follows it": func(a *LastTransaction) (bool, error) {
			if err := a.begin(&c, 100, 7); err != nil {
				return false, err
			}
			ok, err := a.passes(&c, 120)
			return ok && a.begin(&c, 130, 9) == nil, err
		},
	} {
		a := newest
		if ok, err := read(&a); !ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}
