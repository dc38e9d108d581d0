// Connections to each host of source.url by itself, whatever server is there.

package source

import (
	"maps"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// HostConfigs are the connections that source.url offers, one for each of its hosts, in its order:
// each goes to its host alone, whatever server is there.
func (c *Config) HostConfigs() ([]*pgconn.Config, error) {
	all, err := parseURL(c)
	if err != nil {
		return nil, err
	}
	if err := setPassword(c, all); err != nil {
		return nil, err
	}
	maps.Copy(all.RuntimeParams, Settings(c.ApplicationName()))
	all.ValidateConnect = nil
	attempts := append([]*pgconn.FallbackConfig{{Host: all.Host, Port: all.Port, TLSConfig: all.TLSConfig}}, all.Fallbacks...)
	var hosts []*pgconn.Config
	for _, a := range attempts { // one host has several of them, with TLS and without
		i := slices.IndexFunc(hosts, func(h *pgconn.Config) bool { return h.Host == a.Host && h.Port == a.Port })
		if i >= 0 {
			hosts[i].Fallbacks = append(hosts[i].Fallbacks, a)
			continue
		}
		one := all.Copy()
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = a.Host, a.Port, a.TLSConfig, nil
		hosts = append(hosts, one)
	}
	return hosts, nil
}
