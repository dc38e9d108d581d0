//go:build testall

package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/servers/pgserver"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() {
	for _, kind := range stand.Kinds {
		for name, test := range map[string]func(*stand.Stand, *pgserver.Postgres){
			"UnderARelayThatComesLate": func(s *stand.Stand, pg *pgserver.Postgres) { underALivingRelay(s, pg, 64<<20) },
			"UnderAStoppedRelay":       underAStoppedRelay,
			"UnderALeaderWithAStandby": underALeaderWithAStandby,
		} {
			ofOnePostgres = append(ofOnePostgres, ofOne[*pgserver.Postgres]{
				"RolledBack" + name + "/" + kind.Name, func(t *testing.T, pg *pgserver.Postgres) { test(stand.On(t, pg, kind.Shared(t)), pg) },
			})
		}
	}
	ofOnePostgres = append(ofOnePostgres, ofOne[*pgserver.Postgres]{
		"RolledBackUnderALivingRelay/Kafka", func(t *testing.T, pg *pgserver.Postgres) {
			underALivingRelay(stand.On(t, pg, stand.SharedKafka(t)), pg, 0)
		},
	})
}

// A relay that is started on storage of an earlier time remembers nothing, and goes on from the
// slot.
func underAStoppedRelay(s *stand.Stand, pg *pgserver.Postgres) {
	s.T.Helper()
	r := s.Start()
	b := keepImage(s, pg)
	stopped(s, r, 0)
	b.back(0)
	r = s.Start()
	s.Write(10)
	b.allArrive()
	stopped(s, r, 0)
}

// With a standby, whichever relay comes first: nothing that the database has is missed.
func underALeaderWithAStandby(s *stand.Stand, pg *pgserver.Postgres) {
	s.T.Helper()
	s.Start()
	s.Ready(s.Launch())
	b := keepImage(s, pg)
	b.back(64 << 20)
	b.allArrive()
	s.Write(10)
	b.allArrive()
}
