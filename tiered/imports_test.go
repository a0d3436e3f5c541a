package tiered

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// A service links only what it needs to limit requests. That includes neither the models with which
// tests compare the scripts, nor simulations, nor packages that only the command, rules files or
// users' tests need.
func TestServicesLinkNoTestOracle(t *testing.T) {
	const module = "github.com/tierlimit/tierlimit/"
	oracle := []string{module + "internal/model", module + "internal/simulate", module + "internal/textbook", module + "plan/traffic"}
	others := []string{"gonum.org", "github.com/schollz/progressbar", "github.com/alicebob/miniredis", "github.com/goccy/go-yaml"}
	for _, tc := range []struct {
		packages []string // the packages that a service may import
		without  []string
	}{
		{[]string{"tiered", "plan", "httplimit", "livepage", "grpclimit"}, slices.Concat(oracle, others)},
		{[]string{"rulesfile", "tiertest", "serve/..."}, oracle},
	} {
		args := []string{"list", "-deps"}
		for _, p := range tc.packages {
			args = append(args, module+p)
		}
		out, err := exec.Command("go", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for dependency := range strings.Lines(string(out)) {
			for _, prefix := range tc.without {
				if strings.HasPrefix(dependency, prefix) {
					t.Errorf("%v import %s", tc.packages, strings.TrimSpace(dependency))
				}
			}
		}
	}
}
