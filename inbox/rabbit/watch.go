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
// It returns a difference: the session has no topology to work with. All other errors are those of
// a connection, which ends the session by itself, or of a right that the session does not need.
func (c *Consumer) watch(l *link, over <-chan struct{}) error {
	ticker := time.NewTicker(c.watchEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-over:
			return nil
		}
		err := c.declareOn(l)
		var differs *differenceError
		switch {
		case errors.As(err, &differs):
			return err
		case err == nil:
			c.declaring.Works()
		case !l.IsClosed():
			c.declaring.Failed(err)
		}
	}
}
