package deploycheck

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// composed reads compose.yaml as docker compose does, against the published schema, with a profile
// or without.
func composed(t *testing.T, profiles ...string) *types.Project {
	t.Helper()
	return composedOf(t, "deploy/compose.yaml", profiles...)
}

func composedOf(t *testing.T, file string, profiles ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, file)}, cli.WithProfiles(profiles), cli.WithoutEnvironmentResolution)
	must(t, err)
	project, err := options.LoadProject(context.Background())
	must(t, err)
	return project
}

// The servers of make test PKG=... are those of compose.yaml, on this machine alone, and are waited
// for.
func TestServersOfTests(t *testing.T) {
	t.Parallel()
	tried, tests := composed(t, "kafka"), composedOf(t, "test/compose.yaml")
	for _, name := range []string{"postgres", "rabbitmq", "kafka"} {
		s := tests.Services[name]
		if s.Image == "" || s.Image != tried.Services[name].Image {
			t.Errorf("%s is %q, and %q in compose.yaml", name, s.Image, tried.Services[name].Image)
		}
		if s.HealthCheck == nil || len(s.Ports) == 0 {
			t.Errorf("%s has no health check or no port", name)
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s listens on %q", name, p.HostIP)
			}
		}
	}
}

// Everything is there without a profile but Kafka and the shop, and what is waited for can come to
// be: a health check for healthy, an end for completed.
func TestCompose(t *testing.T) {
	t.Parallel()
	plain, all := composed(t), composed(t, "kafka", "shop")
	for _, name := range []string{"prepare", "postgres", "init", "rabbitmq", "relay", "prometheus", "grafana"} {
		if _, ok := plain.Services[name]; !ok {
			t.Errorf("there is no service %s", name)
		}
	}
	for _, name := range []string{"kafka", "kafka-topic", "init-kafka", "relay-kafka", "init-shop", "order-service", "notification-service"} {
		_, without := plain.Services[name]
		if _, with := all.Services[name]; without || !with {
			t.Errorf("%s: without its profile %v, with it %v", name, without, with)
		}
	}
	for name, s := range all.Services {
		for on, d := range s.DependsOn {
			target := all.Services[on]
			switch d.Condition {
			case types.ServiceConditionHealthy:
				if target.HealthCheck == nil || target.HealthCheck.Disable {
					t.Errorf("%s waits until %s is healthy, and it has no health check", name, on)
				}
			case types.ServiceConditionCompletedSuccessfully:
				if target.Restart != "" {
					t.Errorf("%s waits until %s has ended, and it is restarted", name, on)
				}
			default:
				t.Errorf("%s waits for %s only to be started", name, on)
			}
		}
		for _, p := range s.Ports {
			if p.HostIP != "127.0.0.1" {
				t.Errorf("%s: port %s is open to others", name, p.Published)
			}
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				if _, err := os.Stat(v.Source); err != nil {
					t.Errorf("%s mounts what is not there: %v", name, err)
				}
			} else if _, ok := all.Volumes[v.Source]; !ok {
				t.Errorf("%s: volume %s", name, v.Source)
			}
		}
	}
	if build := all.Services["init"].Build; build == nil || build.Dockerfile != dockerfile {
		t.Errorf("init is built by %+v", build)
	}
}

// Each relay runs a command that exists, with a configuration that is valid and names services and
// ports that exist, and has time to stop.
func TestComposeRelays(t *testing.T) {
	t.Parallel()
	project := composed(t, "kafka")
	found := 0
	for name, s := range project.Services {
		if s.Image != "cdc-relay" {
			continue
		}
		found++
		isCommand(t, s.Command)
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s has rights that it does not need", name)
		}
		if len(s.Volumes) != 2 || s.Volumes[0].Target != "/etc/cdc-relay/cdc-relay.yaml" || !s.Volumes[0].ReadOnly ||
			s.Volumes[1].Target != "/run/secrets/cdc-relay" || !s.Volumes[1].ReadOnly {
			t.Fatalf("%s: volumes %+v", name, s.Volumes)
		}
		config := configuration(t, "deploy/compose/"+filepath.Base(s.Volumes[0].Source))
		if strings.HasPrefix(name, "init") {
			continue
		}
		if len(s.Ports) != 2 || strconv.Itoa(int(s.Ports[0].Target)) != port(t, config["admin.metrics_listen"]) ||
			strconv.Itoa(int(s.Ports[1].Target)) != port(t, config["admin.listen"]) {
			t.Errorf("%s: ports %+v, admin.metrics_listen %v, admin.listen %v", name, s.Ports, config["admin.metrics_listen"], config["admin.listen"])
		}
		if grace, least := time.Duration(*s.StopGracePeriod), duration(t, config["delivery.shutdown_grace"])+5*time.Second; grace < least {
			t.Errorf("%s: stop_grace_period %s, want %s or more", name, grace, least)
		}
		addresses := []any{config["source.url"]}
		for _, key := range []string{"sink.rabbitmq.url", "sink.kafka.brokers"} {
			if list, ok := config[key].([]any); ok {
				addresses = append(addresses, list...)
			}
		}
		if len(addresses) != 2 {
			t.Fatalf("%s: addresses %v", name, addresses)
		}
		for _, a := range addresses {
			reaches(t, project, name, a.(string))
		}
	}
	if found != 4 {
		t.Errorf("%d services run the relay", found)
	}
	for _, arg := range project.Services["init"].Command {
		if strings.Contains(arg, "://") {
			reaches(t, project, "init", arg)
		}
	}
}

// The services of the shop have no rights that they do not need, are built by their Dockerfile,
// and connect to services that exist, over TLS.
func TestComposeShop(t *testing.T) {
	t.Parallel()
	project, addresses := composed(t, "shop"), 0
	for _, name := range []string{"order-service", "notification-service"} {
		s := project.Services[name]
		if s.Image != "cdc-relay-shop" || s.Build == nil || s.Build.Dockerfile != shopDockerfile {
			t.Errorf("%s: image %s, built by %+v", name, s.Image, s.Build)
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s has rights that it does not need", name)
		}
		for variable, value := range s.Environment {
			if strings.Contains(*value, "://") {
				addresses++
				reaches(t, project, name, *value)
				if strings.HasPrefix(*value, "postgres://") && !strings.Contains(*value, "sslmode=verify-full&sslrootcert=/run/secrets/shop/ca.pem&require_auth=scram-sha-256") {
					t.Errorf("%s: %s does not verify the server", name, variable)
				}
			}
		}
	}
	if addresses != 3 {
		t.Errorf("there are %d addresses, want two databases and a broker", addresses)
	}
	for _, arg := range project.Services["init-shop"].Command {
		if strings.Contains(arg, "://") {
			reaches(t, project, "init-shop", arg)
		}
	}
}

// reaches checks that an address is a service at a port that its own settings name.
func reaches(t *testing.T, project *types.Project, who, address string) {
	t.Helper()
	host, known := address, map[string]string{"postgres": "5432", "rabbitmq": "5671", "kafka": ""}
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		host = u.Host
	}
	name, number, _ := strings.Cut(host, ":")
	s, ok := project.Services[name]
	if !ok {
		t.Errorf("%s connects to %s, which is no service", who, address)
		return
	}
	want := known[name]
	if advertised := s.Environment["KAFKA_ADVERTISED_LISTENERS"]; advertised != nil {
		want = port(t, *advertised)
		if !strings.Contains(*advertised, "://"+name+":") {
			t.Errorf("kafka tells its clients %s", *advertised)
		}
	}
	if number != want {
		t.Errorf("%s connects to %s, %s listens on %s", who, address, name, want)
	}
}

// The commands of its first lines name services that exist, and commands of the relay.
func TestComposeFirstLines(t *testing.T) {
	t.Parallel()
	project, text := composed(t, "kafka", "shop"), read(t, "deploy/compose.yaml")
	lines := regexp.MustCompile(`(?m)^#   dc exec (\S+) (.*)$`).FindAllStringSubmatch(text, -1)
	if len(lines) < 4 {
		t.Fatalf("only %d commands", len(lines))
	}
	for _, line := range lines {
		if _, ok := project.Services[line[1]]; !ok {
			t.Errorf("there is no service %s: %s", line[1], line[0])
		}
		if args, ok := strings.CutPrefix(line[2], "cdc-relay "); ok {
			isCommand(t, strings.Fields(args))
		}
	}
	for _, found := range regexp.MustCompile(`http://localhost:(\d+)`).FindAllStringSubmatch(text, -1) {
		published := false
		for _, s := range project.Services {
			published = published || slices.ContainsFunc(s.Ports, func(p types.ServicePortConfig) bool { return p.Published == found[1] })
		}
		if !published {
			t.Errorf("nothing is published on %s", found[1])
		}
	}
}
