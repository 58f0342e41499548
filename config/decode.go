package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// valueError is a fault of one value, without its place.
type valueError struct{ message, hint string }

func (e *valueError) Error() string { return e.message + " - " + e.hint }

// section fills the struct v from the merged tree, leaving alone what was not
// given. Keys and shapes were checked when the layers were read.
func (c *collector) section(v reflect.Value, tree map[string]any, path string) {
	for _, f := range fieldsOf(v.Type()) {
		given, ok := tree[f.name]
		if !ok {
			continue
		}
		c.decode(v.FieldByIndex(f.index), given, join(path, f.name), f.choice)
	}
}

func (c *collector) decode(v reflect.Value, given any, path string, choice []string) {
	switch given := given.(type) {
	case string:
		if err := setScalar(v, given, choice); err != nil {
			var one *valueError
			if !errors.As(err, &one) {
				one = &valueError{message: err.Error()}
			}
			c.add(path, one.hint, "%s", one.message)
		}
	case []any:
		list := reflect.MakeSlice(v.Type(), len(given), len(given))
		for i, element := range given {
			switch e := list.Index(i).Addr().Interface().(type) {
			case *Table:
				*e = defaultTable(element)
			case *NamedSource:
				*e = defaultSource(*c.shared, element)
			}
			c.decode(list.Index(i), element, fmt.Sprintf("%s[%d]", path, i), nil)
		}
		v.Set(list)
	case map[string]any:
		if v.Kind() != reflect.Map {
			c.section(v, given, path)
			return
		}
		m := reflect.MakeMap(v.Type())
		for name, element := range given {
			e := reflect.New(v.Type().Elem()).Elem()
			c.decode(e, element, join(path, name), nil)
			m.SetMapIndex(reflect.ValueOf(name), e)
		}
		v.Set(m)
	}
}

// setScalar parses text into v.
func setScalar(v reflect.Value, text string, choice []string) error {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch {
	case v.Type() == durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return &valueError{fmt.Sprintf("%q is not a duration", text), "write a number with a unit, such as 500ms, 5s or 2m"}
		}
		v.SetInt(int64(d))
	case v.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return &valueError{fmt.Sprintf("%q is neither true nor false", text), "write true or false"}
		}
		v.SetBool(text == "true")
	case v.CanInt():
		n, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return numberError(text, err)
		}
		v.SetInt(n)
	case v.CanUint():
		n, err := strconv.ParseUint(text, 10, v.Type().Bits())
		if err != nil {
			return numberError(text, err)
		}
		v.SetUint(n)
	default:
		return setString(v, text, choice)
	}
	return nil
}

func numberError(text string, err error) error {
	if errors.Is(err, strconv.ErrRange) {
		return &valueError{fmt.Sprintf("%q is out of range", text), "write a smaller number"}
	}
	return &valueError{fmt.Sprintf("%q is not a whole number", text), "write digits only"}
}

// setString sets one of a choice. The empty text is allowed where it is the
// default and so means that nothing was chosen.
func setString(v reflect.Value, text string, choice []string) error {
	known := len(choice) == 0 || text == "" && v.String() == ""
	for _, one := range choice {
		known = known || one == text
	}
	if !known {
		last := len(choice) - 1
		hint := "use " + strings.Join(choice[:last], ", ") + " or " + choice[last]
		return &valueError{fmt.Sprintf("%q is not a choice", text), hint}
	}
	v.SetString(text)
	return nil
}
