//go:build testall

package fault

import (
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() {
	slotRecreated = append(slotRecreated, recreated{
		"AfterACleanStop", stand.KindRabbitMQ,
		func(s *stand.Stand, r *runner.Relay) { stopped(s, r, 0) },
		func(s *stand.Stand, _ *runner.Relay) *runner.Relay { return s.Launch() },
	}, recreated{
		"WhileCutOff", stand.KindRabbitMQ,
		func(s *stand.Stand, _ *runner.Relay) { s.Postgres.Cut() },
		func(s *stand.Stand, r *runner.Relay) *runner.Relay { s.Must(s.Postgres.Restore()); return r },
	})
}
