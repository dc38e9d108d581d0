//go:build testall

package rabbit

import (
	"net"
	"testing"
)

// Something takes the connection and never speaks: check says so, without AMQP's terms.
func TestCheckOfASilentAddress(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cfg := Config{URLs: []string{"amqp://guest:guest@" + silent.Addr().String() + "/"}, Exchange: tpl(t, "events"), Connections: 1, Lanes: 1}
	wantFinding(t, Check(t.Context(), cfg), "broker", false, "no answer within 10s", "firewall")
}
