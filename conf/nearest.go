package conf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// Nearest returns the known word with the smallest edit distance to the given word, or "" if no known word is near.
// It ignores case: for vlanid it returns vlanID.
func Nearest(word string, known []string) string {
	word = word[:min(len(word), maxWord)] // first: a tenant's word may have a megabyte
	best, limit := "", len(word)/2+1
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < limit {
			best, limit = k, d
		}
	}
	return best
}

// maxWord is the number of bytes of a tenant's word that are compared and shown.
const maxWord = 64

// UnknownKey returns the error text for an unknown key. The text suggests the nearest known key.
func UnknownKey(key string, known []string) string {
	if near := Nearest(key, known); near != "" {
		return fmt.Sprintf("unknown key %.64q, did you mean %q?", key, near)
	}
	return fmt.Sprintf("unknown key %.64q", key)
}

// distance returns the Levenshtein distance of the first maxWord bytes of two words.
func distance(a, b string) int {
	a, b = a[:min(len(a), maxWord)], b[:min(len(b), maxWord)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}

// Keys returns the JSON names of a struct's fields.
func Keys(v any) []string {
	t := reflect.TypeOf(v)
	keys := make([]string, 0, t.NumField())
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			keys = append(keys, name)
		}
	}
	return keys
}

// DecodeObject decodes one JSON object into a pointer to a struct. It is stricter than encoding/json: the keys must be
// spelled exactly like the struct's tags, an unknown key is an error that suggests the nearest known key, no key may
// occur twice, and nothing may follow the object. If ignore is not nil, it tells which unknown keys are ignored.
func DecodeObject(data []byte, into any, ignore func(key string) bool) error {
	values, err := ReadObject(data, Keys(reflect.ValueOf(into).Elem().Interface()), ignore)
	if err != nil {
		return err
	}
	exact, err := json.Marshal(values)
	if err != nil {
		return JSONError(err)
	}
	return JSONError(json.Unmarshal(exact, into))
}

// ReadObject reads one JSON object as strictly as DecodeObject, and returns the values of the known keys.
func ReadObject(data []byte, known []string, ignore func(key string) bool) (map[string]json.RawMessage, error) {
	var values map[string]json.RawMessage
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&values); err != nil {
		return nil, JSONError(err)
	}
	if values == nil {
		return nil, errors.New("null where an object is wanted")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text after the JSON object")
	}
	if key := twice(data); key != "" && (ignore == nil || !ignore(key)) {
		return nil, fmt.Errorf("key %.64q is given twice", key)
	}
	var unknown []string
	for key := range values {
		if !slices.Contains(known, key) {
			if ignore == nil || !ignore(key) {
				unknown = append(unknown, key)
			}
			delete(values, key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return nil, errors.New(UnknownKey(unknown[0], known))
	}
	return values, nil
}

// twice returns a key that occurs twice in a valid JSON object, or "".
func twice(object []byte) string {
	seen := map[string]bool{}
	dec := json.NewDecoder(bytes.NewReader(object))
	_, _ = dec.Token() // the opening brace
	for dec.More() {
		var value json.RawMessage
		token, _ := dec.Token()
		key, _ := token.(string)
		if seen[key] || dec.Decode(&value) != nil {
			return key
		}
		seen[key] = true
	}
	return ""
}

// JSONError turns an error of encoding/json into one for users: it names the key and uses the words of JSON, not of Go.
func JSONError(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if e.Field == "" {
			return fmt.Errorf("a JSON %.64s where another kind of value is wanted", e.Value)
		}
		return fmt.Errorf("%q does not take a JSON %.64s", e.Field, e.Value)
	}
	if err != nil {
		return fmt.Errorf("not valid JSON: %w", err)
	}
	return nil
}
