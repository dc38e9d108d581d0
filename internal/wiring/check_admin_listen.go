// The line of check about the way that tokens take to the admin port.

package wiring

import (
	"net"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
	"github.com/cdc-relay/cdc-relay/internal/sink"
)

// checkAdminListen warns of tokens that cross the network as they are: whoever reads one may do
// what it opens. Nothing is found where there is no token to read.
func checkAdminListen(a *config.Admin) []check.Finding {
	const name = "admin listen"
	if len(a.Tokens) == 0 {
		return nil
	}
	host, port, err := net.SplitHostPort(a.Listen)
	switch {
	case a.TLS.Cert != "":
		return []check.Finding{{Name: name, Level: check.LevelOK, Detail: "sent over TLS"}}
	case err == nil && sink.Loopback(host):
		return []check.Finding{{Name: name, Level: check.LevelOK, Detail: "sent on this machine only"}}
	}
	return []check.Finding{{
		Name: name, Level: check.LevelWarn, Detail: "admin.listen " + a.Listen + " has no TLS: whoever is in between reads the tokens",
		Fix: "admin: {tls: {cert: /etc/cdc-relay/admin.pem, key: /etc/cdc-relay/admin.key}}; or admin.listen: 127.0.0.1:" + port +
			", with admin.metrics_listen on another port for metrics and probes",
	}}
}
