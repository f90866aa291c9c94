"""The engines, each a module that imports its library and has `PACKAGES` and `open`.

``open(model, settings, room)`` returns an object with two methods, both of which return seconds:
``decode(sequences, context, new)``, those of one step, and ``prompt(length)``, those of a prompt
that the engine has not seen before. A case that an engine cannot do raises NotImplementedError.
"""
