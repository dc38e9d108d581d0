// A virtual host of the shared broker for all tests of a process.

package devenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"testing"
)

var sharedVHost = sync.OnceValues(func() (string, error) {
	r, err := sharedRabbitMQ()
	if err != nil {
		return "", err
	}
	name := "p" + strings.ToLower(rand.Text()[:12])
	if err := r.addVHost(context.Background(), name); err != nil {
		return "", fmt.Errorf("make virtual host: %w", err)
	}
	if r.server == nil { // otherwise it goes with the broker
		shared.add(func() error { return r.deleteVHost(context.Background(), name) })
	}
	u := *r.url
	u.Path = "/" + name
	return u.String(), nil
})

// SharedVHost is the address of a virtual host of the shared broker that all tests of this process
// use: what they declare in it they delete, and none of them runs next to another that uses the
// same names. Main deletes it.
func SharedVHost(t testing.TB) string {
	t.Helper()
	return server(t, sharedVHost)
}
