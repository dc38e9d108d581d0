//go:build testall

package fault

import (
	"github.com/cdc-relay/cdc-relay/internal/devenv"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() {
	slotRecreated = append(slotRecreated, recreated{
		"AfterACleanStop", stand.KindRabbitMQ,
		func(s *stand.Stand, r *devenv.Relay) { stopped(s, r, 0) },
		func(s *stand.Stand, _ *devenv.Relay) *devenv.Relay { return s.Launch() },
	}, recreated{
		"WhileCutOff", stand.KindRabbitMQ,
		func(s *stand.Stand, _ *devenv.Relay) { s.Postgres.Cut() },
		func(s *stand.Stand, r *devenv.Relay) *devenv.Relay { s.Must(s.Postgres.Mend()); return r },
	})
}
