//go:build testall

package fault

import (
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cdc-relay/cdc-relay/internal/devenv/runner"
	"github.com/cdc-relay/cdc-relay/test/fault/stand"
)

// A rolling deployment as deploy/kubernetes has it, by a controller that does what Kubernetes'
// does: with the new configuration, which has one table more, and rows of it all the time. None is
// passed over by an old pod that leads.
func TestRollout(t *testing.T) {
	stand.KindRabbitMQ.On(t, func(s *stand.Stand) {
		d := shippedDeployment(s)
		s.SQL(`CREATE TABLE outbox2 (LIKE outbox INCLUDING ALL)`)
		d.scale(2)
		old := slices.Clone(d.pods)
		s.Deliver(10)
		s.SQL(`ALTER PUBLICATION ` + s.Slot + ` ADD TABLE outbox2`)
		s.Source = "tables: [public.outbox, public.outbox2]"

		var ids []string
		write := func() {
			var id string
			s.Query([]any{&id}, stand.InsertReturning("outbox2", "order", "k"+strconv.Itoa(len(ids))))
			ids = append(ids, id)
		}
		d.start() // maxSurge 1: it is ready, and stands by
		write()
		s.Must(s.Consumer.WaitIDs(s.Context(), ids))
		// it led; the other old pod did after it, or a new one came first
		s.Unready(old[0], "public.outbox2")
		for _, pod := range old {
			d.remove(pod)
			write()
			if len(d.pods) < d.replicas {
				d.start()
			}
			write()
		}
		s.Must(s.Consumer.WaitIDs(s.Context(), ids))
		for _, pod := range d.pods {
			s.Ready(pod)
		}
	})
}

// deployment is Kubernetes' controller, as far as a rollout needs it.
type deployment struct {
	*stand.Stand
	replicas int
	args     []string
	pods     []*runner.Relay
}

// shippedDeployment reads the manifest: how many pods, and with which arguments.
func shippedDeployment(s *stand.Stand) *deployment {
	s.T.Helper()
	text, err := os.ReadFile("../../deploy/kubernetes/deployment.yaml")
	s.Must(err)
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindSubmatch(text)
		if m == nil {
			s.T.Fatalf("the manifest has no %s", pattern)
		}
		return string(m[1])
	}
	if surge := find(`rollingUpdate: \{(.*)\}`); surge != "maxSurge: 1, maxUnavailable: 0" {
		s.T.Fatalf("the manifest rolls by %s: this test plays another way", surge)
	}
	d := &deployment{Stand: s, args: strings.Split(find(`args: \[run, (.*)\]`), ", ")}
	d.replicas, err = strconv.Atoi(find(`replicas: (\d+)`))
	s.Must(err)
	return d
}

// scale starts pods until there are n.
func (d *deployment) scale(n int) {
	d.T.Helper()
	for len(d.pods) < n {
		d.start()
	}
}

// start starts a pod with the configuration of now, and waits until it is ready, as the controller
// does.
func (d *deployment) start() {
	d.T.Helper()
	pod := runner.StartRelayIn(d.T, d.Env, d.Binary, d.Config(), d.args...)
	d.pods = append(d.pods, d.Ready(pod))
}

// remove ends a pod, as the kubelet does.
func (d *deployment) remove(pod *runner.Relay) {
	d.T.Helper()
	pod.Stop(d.T)
	d.pods = slices.DeleteFunc(d.pods, func(p *runner.Relay) bool { return p == pod })
}
