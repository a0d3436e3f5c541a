package serve

import "testing"

// A state that was set for a part before begin stays. That Redis answered when the limiter was opened does not hide
// that it has been lost since, and the reverse.
func TestHealthOfTheBeginning(t *testing.T) {
	for _, test := range []struct {
		what            string
		began, says, ok bool
		said            bool
	}{
		{"nothing was said, and it works", true, false, true, false},
		{"nothing was said, and it does not", false, false, false, false},
		{"it was lost meanwhile", true, false, false, true},
		{"it came back meanwhile", false, true, true, true},
	} {
		h := newHealth()
		if test.said {
			h.set("redis", test.says)
		}
		if h.begin("redis", test.began); h.ok() != test.ok {
			t.Errorf("%s: healthy is %v", test.what, h.ok())
		}
		if h.set("redis", !test.ok); h.ok() == test.ok {
			t.Errorf("%s: and then it changed: healthy is %v", test.what, h.ok())
		}
	}
}
