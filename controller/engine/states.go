package engine

import (
	"bytes"
	"encoding/json"
	"time"
)

// StateText returns the text of an object's new state, and whether that differs from the former text. since is the
// field of the state that says when the state last changed: StateText sets it, and it alone is no difference.
func StateText(former string, state any, since *time.Time) (text string, news bool, err error) {
	var was struct{ Since time.Time }
	var compact bytes.Buffer // a file has a form that people read
	isState := json.Unmarshal([]byte(former), &was) == nil && json.Compact(&compact, []byte(former)) == nil
	if isState && !was.Since.IsZero() {
		*since = was.Since
		if same, err := json.Marshal(state); err != nil || bytes.Equal(same, compact.Bytes()) {
			return former, false, err
		}
	}
	*since = time.Now().UTC().Truncate(time.Second)
	now, err := json.Marshal(state)
	return string(now), true, err
}
