//go:build testall

package rabbit

import (
	"errors"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/await"
)

// A cluster that is renamed under the relay keeps the connections that stand. The next one is
// refused, and a restart takes the new name.
func TestClusterRenamed(t *testing.T) {
	b := ownBroker(t)
	b.exchange("events", nil)
	before := strings.Trim(b.eval("binary_to_list(rabbit_nodes:cluster_name())."), "\"\n")
	rename := func(name string) { b.eval(`rabbit_nodes:set_cluster_name(<<"%s">>, <<"a test">>).`, name) }
	t.Cleanup(func() { b.eval(`rabbit_runtime_parameters:clear_global(cluster_name, <<"a test">>).`) })
	s := start(t, b.config())
	wantConfirmed(t, s.send(newEvent("k", "created")))
	rename("renamed")
	wantConfirmed(t, s.send(newEvent("k", "created")))
	s.firstSession().Kill(errors.New("the test ends it"))
	await.Until(t, "refused", func() bool {
		_, why := s.Up()
		return strings.Contains(why, "is of cluster renamed, the relay has begun with "+before)
	})
	restarted := start(t, b.config())
	wantConfirmed(t, restarted.send(newEvent("k", "created")))
	restarted.end()
	rename(before)
	wantConfirmed(t, s.send(newEvent("k", "created")))
}
