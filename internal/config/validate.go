package config

import (
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// validate checks what one value cannot tell by itself, and what must have a certain form.
func (l *loader) validate() {
	l.validateSink()
	l.validateSource()
	l.validateRetry()
	l.validateMirror()
	l.validateAdmin()
	if _, written := l.written["source.tables"]; !written || !l.cfg.Outbox.ID.Mapped() || !l.cfg.Outbox.Payload.Mapped() {
		l.requireColumns("outbox", place{}, &l.cfg.Outbox)
	}
}

// where is where the value of a key was written, nowhere for a default.
func (l *loader) where(path string) place {
	if a, ok := l.written[path]; ok {
		return a.value.where
	}
	return place{}
}

// faulty reports whether the value of the key at path was refused: what only follows from that is not worth a line.
func (l *loader) faulty(path string) bool {
	where := l.where(path)
	return where != (place{}) && slices.ContainsFunc(l.faults, func(f *Fault) bool { return f.where == where })
}

// check reports err about the key at path, under the name that was written for it.
func (l *loader) check(path string, err error) {
	if err == nil {
		return
	}
	written := path
	if a, ok := l.written[path]; ok {
		written = a.path
	}
	l.fault(l.where(path), written, err.Error())
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

func (l *loader) validateSource() {
	s := &l.cfg.Source
	if !slotName.MatchString(s.Slot) {
		l.check("source.slot", fmt.Errorf("is %q, want 1 to 63 of a-z, 0-9 and _", s.Slot))
	}
	if s.Publication == "" || len(s.Publication) > maxIdentifier || strings.ContainsRune(s.Publication, 0) {
		l.check("source.publication", fmt.Errorf("is %q, want a name of 1 to %d bytes", s.Publication, maxIdentifier))
	}
	if strings.ContainsRune(s.MessagePrefix, 0) {
		l.check("source.message_prefix", errors.New("has a zero character, which no prefix has"))
	}
	if !s.URL.IsSet() {
		for _, name := range []string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"} {
			if l.env[name] != "" {
				return
			}
		}
		l.check("source.url", errors.New("is not set, and neither is PGHOST, PGSERVICE or PGDATABASE"))
		return
	}
	value, err := s.URL.Read()
	if err == nil {
		err = CheckPostgres(value)
	}
	l.check("source.url", err)
}

// urlScheme is the beginning of a URL, also of one with too few slashes or of JDBC.
var urlScheme = regexp.MustCompile(`^(?i:jdbc:)?[a-zA-Z][a-zA-Z0-9+.-]*:/+`)

// CheckPostgres says what is wrong with an address of PostgreSQL. It passes on pgconn's reason
// without the connection string that it quotes, and no reason where the string does not even fall
// into parts: that one would quote a piece of it.
func CheckPostgres(value string) error {
	_, err := pgconn.ParseConfig(value)
	if err == nil {
		return nil
	}
	if scheme := urlScheme.FindString(value); scheme != "" && !strings.HasPrefix(value, "postgres://") && !strings.HasPrefix(value, "postgresql://") {
		only := "; "
		if !strings.Contains(strings.ToLower(scheme), "postgres") {
			only = ", and only PostgreSQL is supported; "
		}
		return errors.New("begins with " + scheme + only + "want postgres://user:password@host:port/database")
	}
	reason := err.Error()
	if i := strings.LastIndex(reason, "`: "); i >= 0 {
		reason = reason[i+len("`: "):]
	}
	if strings.HasPrefix(reason, "failed to parse as") || strings.Contains(reason, "`") {
		return errors.New("cannot be parsed as postgres://user:password@host:port/database or as key=value (quote a value with spaces as 'a b'; in a URL's password / ? # @ : % are written %2F %3F %23 %40 %3A %25)")
	}
	return errors.New("cannot be used: " + reason)
}

func (l *loader) validateAdmin() {
	a := &l.cfg.Admin
	host, port, err := net.SplitHostPort(a.Listen)
	if n, portErr := strconv.Atoi(port); err != nil || portErr != nil || n < 0 || n > 65535 {
		l.check("admin.listen", fmt.Errorf("is %q, want host:port, such as 127.0.0.1:9464", a.Listen))
		return
	}
	l.checkToken("admin.token", a.Token)
	l.checkToken("admin.read_token", a.ReadToken)
	if !isLoopback(host) && !a.Token.IsSet() && !a.ReadToken.IsSet() {
		l.check("admin.listen", fmt.Errorf("is %q, which others can reach: set admin.token or admin.read_token for /api", a.Listen))
	}
}

// checkToken refuses a token that nobody could send: /api would be closed to all.
func (l *loader) checkToken(path string, token Secret) {
	if value, err := token.Read(); token.IsSet() && err == nil && strings.TrimSpace(value) == "" {
		l.check(path, errors.New("is empty"))
	}
}

func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
