// pg_upgrade.

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Upgrade stops a server and makes one of another version with its data by pg_upgrade. bin has the
// programs of that version, with pg_upgrade, pg_dump and pg_restore.
func Upgrade(ctx context.Context, from *Postgres, bin string, opt Options) (*Postgres, error) {
	if _, err := from.Stop("fast"); err != nil {
		return nil, err
	}
	to, err := from.sibling("upgraded")
	if err != nil {
		return nil, err
	}
	to.bin = bin
	version, err := exec.CommandContext(ctx, filepath.Join(bin, "pg_upgrade"), "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("run pg_upgrade: %w", err)
	}
	var more []string
	if strings.Contains(string(version), "(PostgreSQL) 18") { // it has them by default
		more = append(more, "--no-data-checksums")
	}
	if err := to.initdb(ctx, more...); err != nil {
		return nil, err
	}
	if err := to.configure(opt); err != nil {
		return nil, err
	}
	err = to.runProgram(ctx, nil, "pg_upgrade", "-b", from.bin, "-B", bin, "-d", from.data(), "-D", to.data(), "-U", "postgres",
		"-p", from.Url.Port(), "-P", to.Url.Port(), "-s", to.dir)
	if err != nil {
		return nil, err
	}
	if err := to.Start(ctx); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	return to, nil
}
