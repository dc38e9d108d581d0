// How source.url, and the files that it names (sslrootcert, sslcert, sslkey, passfile,
// servicefile), are read again for each connection, so that renewed ones are taken up without a
// restart.

package source

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cdc-relay/cdc-relay/internal/event"
	"github.com/cdc-relay/cdc-relay/internal/secretfile"
)

// parseURL reads source.url and its files.
func parseURL(c *Config) (*pgconn.Config, error) {
	cfg, err := pgconn.ParseConfig(c.URL)
	if err != nil {
		var parse *pgconn.ParseConfigError
		if errors.As(err, &parse) && parse.Unwrap() != nil {
			err = parse.Unwrap() // without the URL
		}
		return nil, fmt.Errorf("%w: %w", errURLFiles, err)
	}
	if err := secretfile.CheckPostgres(c.URL); err != nil {
		return nil, fmt.Errorf("%w: %w", errURLFiles, err)
	}
	alwaysPresent(cfg.TLSConfig)
	for _, f := range cfg.Fallbacks {
		alwaysPresent(f.TLSConfig)
	}
	return cfg, nil
}

// errURLFiles does not end the relay: source.url was valid at the start, and a file that is being
// replaced is soon complete.
var errURLFiles = errors.New("read the files of source.url")

// alwaysPresent sends the client certificate regardless of who signed it, as libpq does. Go does
// not send a certificate that none of the server's CAs signed, and the server would then report a
// missing certificate instead of a wrong one.
func alwaysPresent(cfg *tls.Config) {
	if cfg == nil || len(cfg.Certificates) == 0 {
		return
	}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cfg.Certificates[0], nil }
}

// firstWrite is the writing end of a connection. With TLS 1.3 a server refuses a client certificate
// after the handshake is over for the client, and closes the connection. The first write may then
// fail with a reset that explains nothing, although the server's alert can still be read.
type firstWrite struct {
	to   io.Writer
	done bool
}

func (w *firstWrite) Write(p []byte) (int, error) {
	n, err := w.to.Write(p)
	conn, secure := w.to.(*tls.Conn)
	if err != nil && secure && !w.done { // later, another goroutine reads
		if _, alert := conn.Read(make([]byte, 1)); isAlert(alert) {
			err = alert
		}
	}
	w.done = true
	return n, err
}

// isAlert reports whether err is a TLS alert of the other end.
func isAlert(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "remote error"
}

// renew gives a new connection of the pool the current values of source.url and its files.
func renew(c *Config, cc *pgx.ConnConfig) error {
	fresh, err := parseURL(c)
	if err != nil {
		return err
	}
	cc.Host, cc.Port, cc.TLSConfig, cc.Fallbacks, cc.Password = fresh.Host, fresh.Port, fresh.TLSConfig, fresh.Fallbacks, fresh.Password
	// a service file may have gained them
	cc.RequireAuth, cc.ChannelBinding = fresh.RequireAuth, fresh.ChannelBinding
	return nil
}

func badURL(err error) error {
	return &event.Stop{
		// pgconn removes the password from its text
		Code: event.ExitUsage, Reason: "config", What: "cannot parse source.url", Err: err,
	}
}

// Role is who the relay logs in as.
func (c *Config) Role() string {
	cfg, err := parseURL(c)
	if err != nil {
		return "ROLE" // cannot be: it has connected
	}
	return cfg.User
}
