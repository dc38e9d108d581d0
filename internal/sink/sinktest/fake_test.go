package sinktest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/cdc-relay/cdc-relay/internal/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFake(t *testing.T) {
	sinktest.Run(t, sinktest.Every, func(t *testing.T) sinktest.Broker {
		f := sinktest.NewFake(4)
		f.Start()
		t.Cleanup(func() {
			if err := f.Stop(); err != nil {
				t.Error(err)
			}
		})
		return f
	})
}
