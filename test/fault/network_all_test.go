//go:build testall

package fault

import (
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() {
	stalled := fault{"Stalled", func(_ *stand.Stand, p *netproxy.Proxy) { p.Stall() }, (*stand.Stand).Unready, "confirm_timeout: 10s"}
	toTheBroker = append(toTheBroker, faultOn{stalled, stand.KindRabbitMQ})
	toPostgres = append(toPostgres, faultOn{stalled, stand.KindRabbitMQ})
	lostOver["pipelined"], lostOver["commit"] = stand.KindRabbitMQ, stand.KindKafka
}
