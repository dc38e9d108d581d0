package wiring

import (
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/config"
	"github.com/cdc-relay/cdc-relay/internal/replication/check"
)

// Tokens that cross a network without TLS are a warning.
func TestTokensInClear(t *testing.T) {
	tokens := []config.Token{{Name: "ops", Role: config.RoleOperate}}
	for name, c := range map[string]struct {
		admin config.Admin
		level string
	}{
		"everywhere":      {config.Admin{Listen: "0.0.0.0:9464", Tokens: tokens}, check.LevelWarn},
		"no host":         {config.Admin{Listen: ":9464", Tokens: tokens}, check.LevelWarn},
		"an address":      {config.Admin{Listen: "10.0.0.7:9464", Tokens: tokens}, check.LevelWarn},
		"this machine":    {config.Admin{Listen: "127.0.0.1:9464", Tokens: tokens}, check.LevelOK},
		"IPv6":            {config.Admin{Listen: "[::1]:9464", Tokens: tokens}, check.LevelOK},
		"TLS":             {config.Admin{Listen: "0.0.0.0:9464", Tokens: tokens, TLS: config.AdminTLS{Cert: "c"}}, check.LevelOK},
		"nothing to read": {config.Admin{Listen: "0.0.0.0:9464"}, ""},
	} {
		found := checkAdminListen(&c.admin)
		if c.level == "" {
			if found != nil {
				t.Errorf("%s: found %+v", name, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Level != c.level || (c.level == check.LevelWarn) != strings.Contains(found[0].Fix, "tls: {cert:") {
			t.Errorf("%s: found %+v, want %s", name, found, c.level)
		}
	}
}
