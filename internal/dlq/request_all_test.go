//go:build testall

package dlq

import (
	"errors"
	"testing"
)

func TestWithoutSchema(t *testing.T) {
	r := setup(t)
	r.exec(`DROP SCHEMA cdc_relay CASCADE`)
	_, err := r.admin.List(r.ctx, DeadLetters, Filter{}, "", 1)
	_, err2 := r.admin.Request(r.ctx, Action{Kind: Replay, N: 1, By: by})
	_, err3 := r.admin.Jobs(r.ctx, 1)
	for _, err := range []error{err, err2, err3} {
		if !errors.Is(err, ErrNoSchema) {
			t.Errorf("got %v", err)
		}
	}
}
