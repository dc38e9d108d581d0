package relay

import "go.uber.org/zap"

// tellFailing logs that calls fail one after the other, again when their words change, and that one moved something again.
// A sink waits inside Publish while its broker is away, and tells of that itself: one failed call is the end of a
// connection, two in a row are a fault that waiting does not show.
func (ln *lane) tellFailing(err error) {
	switch {
	case ln.fails == 0 && ln.failing != "":
		ln.line.log.Info("publishing goes on", zap.Int("lane", ln.n))
		ln.failing = ""
	case ln.fails > 1 && err != nil && err.Error() != ln.failing:
		ln.failing = err.Error()
		ln.line.log.Warn("publishing fails and is tried again, nothing is dropped", zap.Int("lane", ln.n), zap.Error(err))
	}
}
