package rabbit

import (
	"errors"
	"strings"
	"testing"
)

// The first broker that names its cluster determines which one the relay publishes to. A broker
// that does not name its cluster is taken and settles nothing. Nodes of a cluster that has no name
// send their own: they cannot be distinguished from two brokers that are no cluster, so both are
// taken. A name that somebody has set is not that of a cluster without one.
func TestOtherCluster(t *testing.T) {
	for _, names := range []string{
		"; blue; ; !green; !rabbit@node; blue", "rabbit@node; ; rabbit@other; !blue; rabbit@node",
	} {
		var s Sink
		for name := range strings.SplitSeq(names, "; ") {
			name, refused := strings.CutPrefix(name, "!")
			if err := s.admitCluster(name, "localhost"); errors.Is(err, errOtherCluster) != refused || (err != nil) != refused {
				t.Errorf("%q of %q: %v", name, names, err)
			}
		}
	}
}
