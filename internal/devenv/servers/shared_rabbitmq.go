// A virtual host of the shared broker for all tests of a process.

package servers

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
	if err := r.AddVHost(context.Background(), name); err != nil {
		return "", fmt.Errorf("make virtual host: %w", err)
	}
	if r.Server == nil { // otherwise it goes with the broker
		shared.add(func() error { return r.DeleteVHost(context.Background(), name) })
	}
	u := *r.Url
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
