//go:build testall

package fault

import (
	"github.com/cdc-relay/cdc-relay/internal/devenv/netproxy"
	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

func init() {
	stalled := fault{"Stalled", func(_ *stand.Stand, p *netproxy.Proxy) { p.Stall() }, (*stand.Stand).Unready, true, "confirm_timeout: 10s"}
	trickling := fault{"Trickling", func(_ *stand.Stand, p *netproxy.Proxy) { p.Trickle(20_000) }, goesOn, false, ""}
	toTheBroker = append(toTheBroker, faultOn{stalled, stand.KindRabbitMQ}, faultOn{stalled, stand.KindKafka}, faultOn{trickling, stand.KindKafka})
	toPostgres = append(toPostgres, faultOn{reset, stand.KindKafka}, faultOn{stalled, stand.KindRabbitMQ})
	lostOver["pipelined"], lostOver["commit"] = stand.KindRabbitMQ, stand.KindKafka
}

func goesOn(s *stand.Stand, _ *runner.Relay, _ string) {
	s.T.Helper()
	s.More(50)
}
