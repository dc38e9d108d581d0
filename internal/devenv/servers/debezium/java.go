// The Java that runs Debezium.

package debeziumserver

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// DebeziumJava is the first line of what the Java says that Debezium runs on: "openjdk version "25"
// 2025-09-16 LTS".
func DebeziumJava(ctx context.Context) (string, error) {
	install, err := findDebezium()
	if err != nil {
		return "", err
	}
	said, err := exec.CommandContext(ctx, install.java, "-version").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", install.java, err)
	}
	line, _, _ := strings.Cut(string(said), "\n")
	return strings.TrimSpace(line), nil
}
