package fault

import (
	"testing"

	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// The same with a standby that takes over: the former leader reports nothing and leads no more.
// Until it learns that, it sends what had been on its way to it, in order: of what came since the
// last report each event may arrive twice.
func TestFrozenWithAStandby(t *testing.T) {
	stand.KindKafka.On(t, func(s *stand.Stand) {
		s.WatchFlush()
		old := s.Start()
		s.Leads(old)
		standby := s.Start()
		stop := s.Load(200)
		s.More(50)
		flush := s.Flush()
		s.Must(old.Freeze())
		s.Leads(standby)
		s.More(50)
		s.Must(old.Thaw())
		s.More(50)
		s.Deposed(old)
		bound := s.Since(flush)
		s.Leads(standby)
		s.More(50)
		stop()
		s.Check(bound)
	})
}
