//go:build nightly

package deploycheck

import (
	"debug/buildinfo"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
)

func init() { given = "" } // the relay of all tests is that of the image

// The binaries of the images are static, and have their licences beside them. The relay knows its
// version.
func TestImages(t *testing.T) {
	t.Parallel()
	if out, err := runs(t, nil, relay, "version"); err != nil || !strings.HasPrefix(out, "cdc-relay "+testVersion+" ") {
		t.Errorf("version says %q, %v", out, err)
	}
	shop, err := buildAsInTheImage(shopDockerfile, t.TempDir())
	must(t, err)
	for path, file := range map[string]string{
		relay: dockerfile, filepath.Join(filepath.Dir(shop), "order-service"): shopDockerfile, filepath.Join(filepath.Dir(shop), "notification-service"): shopDockerfile,
	} {
		list, _, err := stages(file)
		must(t, err)
		binary, err := elf.Open(path)
		must(t, err)
		for _, p := range binary.Progs {
			if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
				t.Errorf("%s is not static: it has %s", path, p.Type)
			}
		}
		must(t, binary.Close())
		hasNotices(t, path, list[1])
	}
}

// hasNotices checks that the image has the licence of each module that a binary says it is built
// of, with that of its code, and those of Go and of ours.
func hasNotices(t *testing.T, binary string, image instructions.Stage) {
	t.Helper()
	of, err := buildinfo.ReadFile(binary)
	must(t, err)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(binary), "THIRD-PARTY-NOTICES"))
	must(t, err)
	if len(of.Deps) < 10 {
		t.Errorf("%s says that it is built of %d modules", binary, len(of.Deps))
	}
	want := []string{"\nGo " + of.GoVersion + ": LICENSE\n"}
	for _, module := range of.Deps {
		if !strings.HasPrefix(module.Path, "github.com/cdc-relay/cdc-relay/") { // /LICENSE is ours
			want = append(want, "\n"+module.Path+" "+module.Version+": ")
		}
	}
	for _, heading := range want {
		if _, licence, _ := strings.Cut(string(text), heading); len(licence) < 500 {
			t.Errorf("the notices lack %q", heading)
		}
	}
	for _, file := range []string{"/THIRD-PARTY-NOTICES", "/LICENSE"} {
		if !slices.ContainsFunc(image.Commands, func(command instructions.Command) bool {
			c, ok := command.(*instructions.CopyCommand)
			return ok && c.DestPath == file
		}) {
			t.Errorf("the image has no %s", file)
		}
	}
}
