// What is changed at the broker while messages are received.

package rabbit

import (
	"errors"
	"time"
)

// watch declares the topology again from time to time, until the session is over. Without it a
// binding that was removed, by hand or with an exchange that was deleted and made again, would
// leave the service without messages, and nothing would say so.
//
// Only a difference ends the session: it has no topology to work with. All other errors are those of
// a connection, which ends the session by itself, or of a right that the session does not need.
func (s *session) watch(l *link) {
	ticker := time.NewTicker(s.c.watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.over:
			return
		}
		err := s.c.declareOn(l)
		var differs *differenceError
		switch {
		case errors.As(err, &differs):
			s.end(err)
		case err == nil:
			s.c.declaring.Works()
		case !l.IsClosed():
			s.c.declaring.Failed(err)
		}
	}
}
